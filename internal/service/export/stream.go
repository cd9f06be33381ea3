package export

// stream is an export in one piece. It cannot be gone on with.
type stream struct{ encoder }

func newStream(r *run) (*stream, error) {
	e, err := newEncoder(r.options.Stream, r.options.Kind, r.options.Format)
	return &stream{e}, err
}

func (*stream) resume(string) (uint64, error)    { return 0, nil }
func (s *stream) write(b *exported, r Row) error { return s.encoder.write(b, r) }
func (*stream) reached(*exported, uint64) error  { return nil }
func (*stream) finish(*exported, uint64) error   { return nil }
func (s *stream) end() error                     { return s.close() }
