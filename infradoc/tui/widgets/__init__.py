"""One widget or painter a file. A painter turns data into strips in a worker; a widget only shows them."""
