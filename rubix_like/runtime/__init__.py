"""What a program needs of the computer it runs on: nothing here knows of astronomy."""
