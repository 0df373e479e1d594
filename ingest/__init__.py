"""Foreign trajectory formats become events; the shipper; stores behind the runtime's protocols."""
