"""How the errors of data are distributed: likelihoods beside independent normal ones."""
