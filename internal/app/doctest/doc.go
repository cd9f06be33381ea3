// Package doctest holds tests only: they run what the documentation asks people to type, in real shells against the
// real binary, and compare what is printed with what the page shows.
package doctest
