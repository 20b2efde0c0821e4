"""Results on disk and the numbers made from them. Reads a stored run without the plug-ins that made it."""
