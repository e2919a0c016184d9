"""Flag protocols between ranks as programs of the explorer: steps that every rank takes in every exchange."""
