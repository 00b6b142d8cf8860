"""Models: loading, packing, attention, replay, sharding, export."""
