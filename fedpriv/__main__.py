"""`python -m fedpriv`."""

from fedpriv.cli import console

if __name__ == "__main__":
    console()
