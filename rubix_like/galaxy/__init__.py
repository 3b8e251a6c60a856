"""A galaxy as particles: checked, aligned, placed on devices, or made from parameters."""
