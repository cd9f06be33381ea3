package store

import (
	"fmt"

	"github.com/tallystick/tallystick/internal/core/tenant"
)

// Slugs names a tenant's meters by number, for whoever shows what rows hold.
func Slugs(v View) (map[uint32]string, error) {
	meters, err := v.Meters("", tenant.MaxMeters)
	if err != nil {
		return nil, fmt.Errorf("list meters: %w", err)
	}
	out := make(map[uint32]string, len(meters))
	for i := range meters {
		out[meters[i].Number] = meters[i].Slug
	}
	return out, nil
}
