package httpkit

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

var errDuration = errors.New(`must be a duration such as "48h", "90m", "5s" or "7d"`)

const day = 24 * time.Hour

// ParseDuration reads Go's durations without a sign, and days in front of them: "7d", "1d12h".
func ParseDuration(s string) (time.Duration, error) {
	if s == "" || s[0] == '-' || s[0] == '+' {
		return 0, errDuration
	}
	var whole time.Duration
	if days, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil || n > uint64(math.MaxInt64/day) || rest != "" && (rest[0] == '-' || rest[0] == '+') {
			return 0, errDuration
		}
		whole, s = time.Duration(n)*day, rest
		if s == "" {
			return whole, nil
		}
	}
	part, err := time.ParseDuration(s)
	if err != nil || part < 0 || whole > math.MaxInt64-part {
		return 0, errDuration
	}
	return whole + part, nil
}

// FormatDuration is the shortest of Go's forms: "48h", not "48h0m0s".
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
