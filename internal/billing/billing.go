// Package billing has the replies of the endpoints that show clients what they have used, in OpenAI's legacy format.
package billing

import "encoding/json"

// A Usage is the reply of the usage endpoint.
type Usage struct {
	Object     string  `json:"object"`
	DailyCosts []Day   `json:"daily_costs"`
	TotalUsage float64 `json:"total_usage"` // in US cents
	*Used
}

type Day struct {
	Timestamp json.RawMessage `json:"timestamp"` // Unix time in seconds, with a fraction of zero
	LineItems []LineItem      `json:"line_items"`
}

type LineItem struct {
	Name string  `json:"name"` // of the model
	Cost float64 `json:"cost"` // in US cents
	*Used
}

// A Used is what was used, in the members that the legacy reply lacks.
type Used struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
	Requests         int64 `json:"requests"`
	Images           int64 `json:"images"`
}

// Unlimited is the limit in the reply of the subscription endpoint for a key
// without one. Clients know it from other servers.
const Unlimited = 100_000_000

// A Subscription is the reply of the subscription endpoint, in OpenAI's legacy
// format. TokenLimit is a member that the format lacks.
//
// Clients subtract from the limit what the usage endpoint reports: for the calendar
// month if HasPayment is set, which it is if every Quota is by calendar month, and otherwise for the
// last 100 days. So that the rest is what the Quota has left, the limits include what the account used
// in these days and what does not count toward the Quota.
type Subscription struct {
	Object          string  `json:"object"`
	HasPayment      bool    `json:"has_payment_method"`
	SoftLimit       float64 `json:"soft_limit_usd"`
	HardLimit       float64 `json:"hard_limit_usd"`
	SystemHardLimit float64 `json:"system_hard_limit_usd"`
	AccessUntil     int64   `json:"access_until"` // Unix time in seconds; zero means for ever
	TokenLimit      *int64  `json:"hard_limit_tokens,omitempty"`
}
