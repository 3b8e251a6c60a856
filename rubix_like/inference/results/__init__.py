"""Results of fits and samplings, their files and summaries."""
