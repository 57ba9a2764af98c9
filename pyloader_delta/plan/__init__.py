"""1. plan: chunks become windows and batches, in an order fixed by seeds. Pure: nothing is opened or sent here."""
