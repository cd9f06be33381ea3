package store

import (
	"context"
	"fmt"
)

// tenantsPage is how many tenants are listed at a time.
const tenantsPage = 1000

// EachTenant calls fn for the id of every tenant, in order; the operator's own ledger is not among them. Whoever has to
// do something for all of them goes through here. It ends with a page that is empty, not with one that is short: a
// store may give fewer than it was asked for. Errors are those of the store and of fn.
func EachTenant(ctx context.Context, s interface {
	Tenants(ctx context.Context, after string, limit int) ([]Listed, error)
}, fn func(t *Listed) error) error {
	for after := ""; ; {
		page, err := s.Tenants(ctx, after, tenantsPage)
		if err != nil {
			return fmt.Errorf("list tenants: %w", err)
		}
		if len(page) == 0 {
			return nil
		}
		for i := range page {
			if page[i].ID <= after {
				return fmt.Errorf("list tenants: %q is listed after %q", page[i].ID, after)
			}
			after = page[i].ID
			if err := fn(&page[i]); err != nil {
				return err
			}
		}
	}
}
