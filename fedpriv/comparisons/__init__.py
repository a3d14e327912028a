"""Methods beside each other at one certified epsilon: `fedpriv compare`."""
