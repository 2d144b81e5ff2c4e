"""What is known without asking a host: devices, links, model shapes, names of engines."""
