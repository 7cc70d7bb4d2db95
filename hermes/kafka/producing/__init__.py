"""Kafka's Produce: what becomes of a request, of each of its batches, and how it is answered."""
