"""Small building blocks that every layer shares. Import them from their modules."""
