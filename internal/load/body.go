package load

import "strconv"

// AppendID writes a fact's id.
func AppendID(b []byte, f *Fact) []byte {
	const digits = "0123456789abcdef"
	b = append(b, idPrefix...)
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, digits[f.ID>>shift&15])
	}
	return b
}

const idPrefix = "evt_"

// IDBytes is the length of every id.
const IDBytes = len(idPrefix) + 16

// AppendJSON writes the batch as a request body: one object for a batch of one, else an array.
func (w *Workload) AppendJSON(b []byte, batch *Batch) []byte {
	if len(batch.Facts) == 1 {
		return w.appendFact(b, &batch.Facts[0])
	}
	separator := byte('[')
	for i := range batch.Facts {
		b = append(b, separator)
		b = w.appendFact(b, &batch.Facts[i])
		separator = ','
	}
	return append(b, ']')
}

func (w *Workload) appendFact(b []byte, f *Fact) []byte {
	b = append(b, `{"id":"`...)
	b = AppendID(b, f)
	b = append(b, `","meter":"`...)
	b = append(b, w.meters[f.Meter]...)
	b = append(b, `","customer":"`...)
	b = append(b, w.customers[f.Customer]...)
	b = append(b, `","time":"`...)
	b = w.appendTime(b, f.Offset)
	b = append(b, `","quantity":"`...)
	b = strconv.AppendInt(b, f.Quantity, 10)
	return append(b, `"}`...)
}

// appendTime writes RFC 3339 with milliseconds. Only what lies within the hour changes.
func (w *Workload) appendTime(b []byte, offset int64) []byte {
	b = append(b, w.hourText...)
	millis := offset % 1000
	seconds := offset / 1000 % 60
	minutes := offset / 60_000
	return append(b, byte('0'+minutes/10), byte('0'+minutes%10), ':', byte('0'+seconds/10), byte('0'+seconds%10),
		'.', byte('0'+millis/100), byte('0'+millis/10%10), byte('0'+millis%10), 'Z')
}
