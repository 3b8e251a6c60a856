"""Arms of a spectrograph that one program observes: their particles are painted together."""
