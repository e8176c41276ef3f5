package passwordhash_test

import (
	"fmt"

	"github.com/llmhttp/llmhttp/console/passwordhash"
)

func Example() {
	text, err := passwordhash.New("correct horse battery staple")
	if err != nil {
		fmt.Println(err)
		return
	}
	hash, err := passwordhash.Parse(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(hash.Matches("correct horse battery staple"), hash.Matches("guess"))
	// Output: true false
}
