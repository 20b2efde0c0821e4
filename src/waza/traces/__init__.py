"""One file per foreign trace format; each turns what it knows into our Trace."""
