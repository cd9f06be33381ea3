package usage

import (
	"encoding/binary"

	"github.com/tallystick/tallystick/internal/core/amount"
)

// contentVersion starts every content encoding: a fingerprint of another version never equals one of this.
const contentVersion = 1

// The fields of a content encoding.
const (
	contentID = iota + 1
	contentMeter
	contentType
	contentCustomer
	contentResource
	contentTime
	contentQuantity
	contentProperties
	contentCorrects
	contentReason
)

// AppendContent encodes what the client sent, canonically: two deliveries of one fact encode alike, a change of any
// stated field does not. A time or field that was absent stays absent. Under a derived key the client's id is no
// content. It takes an event that Prepare completed, or the row that was made of it, and gives the same for both.
func AppendContent(b []byte, e *Event, space Space) []byte {
	b = append(b, contentVersion)
	if space == ClientSpace {
		b = appendString(append(b, contentID), e.ID)
	}
	if e.Has(GivenMeter) {
		b = appendString(append(b, contentMeter), e.Meter)
	}
	if e.Has(GivenType) {
		b = appendString(append(b, contentType), e.Type)
	}
	if e.Has(GivenCustomer) {
		b = appendString(append(b, contentCustomer), e.Customer)
	}
	if e.Has(GivenResource) {
		b = appendString(append(b, contentResource), e.Resource)
	}
	if e.Has(GivenTime) {
		b = binary.AppendVarint(append(b, contentTime), int64(e.Time))
	}
	b = amount.AppendBinary(append(b, contentQuantity), e.Quantity)
	if e.Properties != "" {
		b = appendString(append(b, contentProperties), e.Properties)
	}
	if e.Corrects != "" {
		b = appendString(append(b, contentCorrects), e.Corrects)
		b = appendString(append(b, contentReason), e.Reason)
	}
	return b
}

// SameContent compares two facts of one key as their senders wrote them.
func SameContent(a, b *Event, space Space) bool {
	var x, y [512]byte
	return string(AppendContent(x[:0], a, space)) == string(AppendContent(y[:0], b, space))
}
