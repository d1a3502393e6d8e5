"""What verdicts say of a host, for frontiers and operators: how much of it is new, and which of its URLs never are."""
