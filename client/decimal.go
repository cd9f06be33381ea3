package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Decimal is an exact decimal in its written form, such as "0.125". It is never
// converted to a float; calculate with math/big or a decimal library. Empty
// means absent.
type Decimal string

// UnmarshalJSON takes a string, or a number digit by digit, or null as absent.
func (d *Decimal) UnmarshalJSON(data []byte) error {
	if bytes.Equal(data, []byte("null")) {
		*d = ""
		return nil
	}
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return fmt.Errorf("decimal: %w", err)
		}
		*d = Decimal(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(data, &n); err != nil {
		return errors.New("decimal: neither a string nor a number")
	}
	*d = Decimal(n)
	return nil
}
