package load

// Totals is what one tenant's counters must show, by meter and customer.
type Totals struct {
	Events    int64
	customers int
	count     []int64
	sum       []int64
}

// Totals folds everything the streams have drawn for a tenant, once per distinct fact. It is computed after a run from
// what the facts are a function of, so that a run pays nothing for it.
func (w *Workload) Totals(tenant int, streams []*Stream) *Totals {
	n := len(w.meters) * len(w.customers)
	t := &Totals{customers: len(w.customers), count: make([]int64, n), sum: make([]int64, n)}
	for _, s := range streams {
		for i := range s.next[tenant] {
			f := w.Fact(s.number, i)
			at := f.Meter*t.customers + f.Customer
			t.count[at]++
			t.sum[at] += f.Quantity
			t.Events++
		}
	}
	return t
}

// Of returns the count and the sum of a meter's customer.
func (t *Totals) Of(meter, customer int) (count, sum int64) {
	at := meter*t.customers + customer
	return t.count[at], t.sum[at]
}

// Counters is how many counters have any facts.
func (t *Totals) Counters() int {
	n := 0
	for _, c := range t.count {
		if c > 0 {
			n++
		}
	}
	return n
}

// Sum adds up one meter's quantities.
func (t *Totals) Sum(meter int) int64 {
	var sum int64
	for _, q := range t.sum[meter*t.customers : (meter+1)*t.customers] {
		sum += q
	}
	return sum
}
