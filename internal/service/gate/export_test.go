package gate

import "context"

// Authenticate is the first of Enter's steps.
func (g *Gate) Authenticate(ctx context.Context, token, named string) (Caller, error) {
	c, _, err := g.authenticate(ctx, token, named)
	return c, err
}
