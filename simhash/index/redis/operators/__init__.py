"""What operators do with an index in Redis, while workers go on."""
