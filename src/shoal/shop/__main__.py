"""Serve the shop until Ctrl-C."""

from shoal.shop.server import serve

if __name__ == "__main__":
    serve()
