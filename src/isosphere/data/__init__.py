"""Images, their split by class, the batches a step sees, and what is done to their pixels."""
