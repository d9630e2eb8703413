"""`--format html`: one self-contained page, for tickets and for people who were not there."""
