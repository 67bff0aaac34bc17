"""The path of every call: views, routes, interceptors, and what a Python program may ask."""
