package sqlstore

const childRole = "SQLSTORE_TEST_CHILD"

func runChild(string) int { return 0 }
