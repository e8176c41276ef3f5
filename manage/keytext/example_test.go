package keytext_test

import (
	"fmt"

	"github.com/llmhttp/llmhttp/manage"
	"github.com/llmhttp/llmhttp/manage/keytext"
)

func ExampleSetLimit() {
	var params manage.KeyParams
	for name, text := range map[string]string{"requests": "60/min", "quota": "20usd/month", "concurrent": "4"} {
		if err := keytext.SetLimit(&params.Limits, name, text); err != nil {
			fmt.Println(name+":", err)
		}
	}
	for _, name := range keytext.LimitNames() {
		if text := keytext.FormatLimit(&params.Limits, name); text != "" {
			fmt.Println(name, text)
		}
	}
	fmt.Println(keytext.SetLimit(&params.Limits, "tokens", "many/day"))
	// Output:
	// requests 60/m
	// quota 20usd/month
	// concurrent 4
	// "many" is not a number such as 60, 1_000_000 or 1.5M
}
