// Package jsonwire decodes and encodes JSON by tables. A table describes the members of a Go struct
// once, and is used to decode, to encode and to check the bounds of numbers:
//
//	var point = jsonwire.NewObject(
//		jsonwire.String("name", func(p *Point) *string { return &p.Name }).Always(),
//		jsonwire.OptionalFloat("x", func(p *Point) **float64 { return &p.X }).Between(-90, 90),
//		jsonwire.List("tags", func(p *Point) *[]Tag { return &p.Tags }, tag, 16),
//		jsonwire.Extra(func(p *Point) *map[string]json.RawMessage { return &p.Extra }),
//	)
//
//	err := jsonwire.Unmarshal(data, point, &p)
//	b, err := point.Append(nil, &p)
//
// Members are encoded in the order of the table. Those with zero values are left out, unless the
// table says Always. A member that is null in a document leaves its field as it is. Members without
// a field are kept in the Extra map of the struct and encoded behind the others in the order of
// their names; without an Extra map they are skipped.
//
// Values other than structs are described by a [Type]. [Member] returns a field
// with a Type.
// [List] and [ListOf] are for arrays of objects. A list of texts and a map need a Type of their
// own, which bounds their length. There is no kind for a text that has fixed values: the Validate
// of the struct checks it.
//
// [Unmarshal] is strict: it refuses duplicate names, names that differ from those of
// fields only in case, invalid UTF-8, halves of surrogate pairs and values of the wrong
// type. [UnmarshalLenient] accepts them and makes the best of the document. Both bound
// what a small document can cost: see [MaxDepth], [MaxMembers] and [MaxValues].
//
// Decoded strings may share one copy of the document. A string that outlives the rest
// keeps at most 4 KB of it in memory, or four times its own length if that is more.
package jsonwire
