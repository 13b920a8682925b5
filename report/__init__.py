"""The report of a run as one HTML page: `python -m report MODEL_DIR -o page.html`."""
