"""Active tests: what hosts do to each other and to themselves, measured; findings made of it."""
