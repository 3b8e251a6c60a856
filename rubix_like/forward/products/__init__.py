"""Maps, velocity distributions and broad-band images: what the particles of a field are and do, beside its cube."""
