// Package killtest kills the real binary under load, again and again, and its database too, and then proves that every
// acknowledged fact is there exactly once. One server has the embedded store; several share a PostgreSQL database and
// must agree. It holds tests and nothing that a program could import.
package killtest
