"""Services of the computer that a program runs on: nothing here knows of astronomy."""
