// Package members compares what the types of the official SDKs have with what the server accepts and sends. It
// walks over the types by reflection, and for each member sends a request that has it, or looks for it in
// a reply. testdata/members.txt has a line with a reason for each that does not reach the Backend, or is not sent.
// A new version of an SDK that has other members fails TestMembers, until the file has a reason for each.
package members
