"""Search: scalar indexes beside other libraries."""
