"""Sources of light: kinds of particles, the templates that they shine as, and the painters of their light."""
