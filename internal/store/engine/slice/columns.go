package slice

import (
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/snappy"

	"github.com/tallystick/tallystick/internal/core/amount"
)

// record is a row of a file. Its tags are the schema, which docs/formats.md describes: what a fact did to one meter.
type record struct {
	Tenant     string         `parquet:"tenant,dict"`
	Month      string         `parquet:"month,dict"`
	Meter      string         `parquet:"meter,dict"`
	Customer   string         `parquet:"customer,dict"`
	Time       int64          `parquet:"time,timestamp(microsecond),delta"`
	Seq        int64          `parquet:"seq,delta"`
	At         int64          `parquet:"at,timestamp(microsecond),delta"`
	KeySpace   string         `parquet:"key_space,dict"`
	Key        string         `parquet:"key"`
	Resource   string         `parquet:"resource,dict"`
	Properties string         `parquet:"properties,dict"`
	Quantity   amount.Decimal `parquet:"quantity,decimal(12:38),dict"`
	Value      amount.Decimal `parquet:"value,decimal(12:38),dict"`
	Why        string         `parquet:"why,dict"`
	Overage    bool           `parquet:"overage"`
	Member     string         `parquet:"member,dict"`
	Corrects   string         `parquet:"corrects,dict"`
	Base       amount.Decimal `parquet:"base,decimal(12:38),dict"`
	Adjusted   amount.Decimal `parquet:"adjusted,decimal(12:38),dict"`
}

// The columns in the order of record.
const (
	colTenant = iota
	colMonth
	colMeter
	colCustomer
	colTime
	colSeq
	colAt
	colKeySpace
	colKey
	colResource
	colProperties
	colQuantity
	colValue
	colWhy
	colOverage
	colMember
	colCorrects
	colBase
	colAdjusted
	columnCount
)

var schema = parquet.SchemaOf(record{})

// shape says how large the parts of files are.
type shape struct {
	// pageRows is how many rows a page has; only pages of long strings have fewer. A query for one customer decodes a
	// page or two of each column: small enough for that, large enough to decode fast.
	pageRows int
	// groupRows, a multiple of pageRows, bounds what a writer holds in memory, and how much one entry of the footer
	// stands for.
	groupRows int
	// dictionaryBytes is where a dictionary has stopped paying: pages after that hold plain values.
	dictionaryBytes int64
	// blockBytes is what one sum stands for, and the least that is read of a file. Files on disk are summed by the
	// default.
	blockBytes int
	// readBuffer is what a column reads at a time: two or three pages of numbers.
	readBuffer int
}

var defaultShape = shape{
	pageRows: 8192, groupRows: 16 * 8192, dictionaryBytes: 1 << 20, blockBytes: 64 << 10, readBuffer: 64 << 10,
}

const (
	// pageBytes ends pages of long strings. Numbers do not reach it in a page's rows.
	pageBytes = 256 << 10
	// boundBytes keeps page bounds whole: names are bounded to 255 bytes.
	boundBytes = 256
)

func (s shape) options() []parquet.WriterOption {
	sorting := make([]parquet.SortingColumn, 0, 6)
	for _, name := range [...]string{"tenant", "month", "meter", "customer", "time", "seq"} {
		sorting = append(sorting, parquet.Ascending(name))
	}
	options := []parquet.WriterOption{
		schema,
		// LZ4 would decode a little faster; parquet-go v0.32 reads its own LZ4 pages wrongly
		parquet.Compression(&snappy.Codec{}),
		parquet.PageBufferSize(pageBytes),
		parquet.DataPageStatistics(false), // the index of pages has them
		parquet.DictionaryMaxBytes(s.dictionaryBytes),
		parquet.ColumnIndexSizeLimit(func([]string) int { return boundBytes }),
		parquet.SortingWriterConfig(parquet.SortingColumns(sorting...)),
		parquet.CreatedBy("tallystick", "1", ""),
	}
	// Nobody looks for rows by these, and bounds of decimals are a place where readers disagree about the sign.
	for _, name := range [...]string{"key", "properties", "quantity", "value", "base", "adjusted"} {
		options = append(options, parquet.SkipPageBounds(name))
	}
	return options
}
