package keycache_test

const testSecret = "sk-fixture-5d41402abc4b2a76b9719d91"
