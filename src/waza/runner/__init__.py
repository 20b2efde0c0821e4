"""Plan trials, run them, grade them. Keeps nothing and prints nothing: each result goes to `on_result`."""
