package instance

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// container returns an array or object.
func (m *maker) container(t string, l location, schemas []*jsonschema.Schema, full bool) (value, error) {
	if t == "array" {
		return m.array(l, schemas, full)
	}
	return m.object(l, schemas, full)
}

// object returns an object with the required properties and, if full is true,
// with the optional ones that have a value.
func (m *maker) object(l location, schemas []*jsonschema.Schema, full bool) (value, error) {
	names, required := m.properties(schemas)
	members := make(map[string]any)
	encoded := []byte("{")
	for _, name := range names {
		if !required[name] && (!full || m.steps.isLow()) {
			continue
		}
		v, err := m.valueFor(location{property: name, variant: l.variant}, propertySchemas(schemas, name))
		if err != nil && required[name] {
			return value{}, err
		}
		if err != nil {
			continue
		}
		key, err := m.encode(name)
		if err != nil {
			return value{}, err
		}
		if len(members) > 0 {
			encoded = append(encoded, ',')
		}
		members[name] = v.decoded
		encoded = append(append(append(encoded, key.encoded...), ':'), v.encoded...)
	}
	m.steps.spend(len(encoded) / 64)
	return value{members, append(encoded, '}')}, nil
}

// properties returns the names of the properties that schemas declare or require,
// in the order of the schema, and which of them are required. It adds names if
// schemas require more properties.
func (m *maker) properties(schemas []*jsonschema.Schema) (names []string, required map[string]bool) {
	position := func(s *jsonschema.Schema) int {
		_, fragment, _ := strings.Cut(s.Location, "#")
		pointer, _ := url.PathUnescape(fragment)
		return m.order[pointer]
	}
	required = make(map[string]bool)
	least := 0
	for _, s := range schemas {
		least = max(least, deref(s.MinProperties, 0))
		first := len(names)
		names = slices.AppendSeq(names, maps.Keys(s.Properties))
		slices.SortFunc(names[first:], func(a, b string) int { return position(s.Properties[a]) - position(s.Properties[b]) })
		names = append(names, s.Required...)
		for _, name := range s.Required {
			required[name] = true
		}
	}
	m.steps.spend(len(names) + least)
	seen := make(map[string]bool)
	names = slices.DeleteFunc(names, func(name string) bool {
		duplicate := seen[name]
		seen[name] = true
		return duplicate
	})
	for i := 1; len(names) < least; i++ {
		if name := fmt.Sprint("property", i); !seen[name] {
			names, required[name] = append(names, name), true
		}
	}
	return names, required
}

// propertySchemas returns the subschemas of schemas for a property.
func propertySchemas(schemas []*jsonschema.Schema, name string) []*jsonschema.Schema {
	var found []*jsonschema.Schema
	for _, s := range schemas {
		if declared := s.Properties[name]; declared != nil {
			found = append(found, declared)
		} else if additional, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
			found = append(found, additional)
		}
	}
	return found
}

// array returns an array with the required number of items. If full is true, it tries to have at
// least one item and all that are declared one by one.
func (m *maker) array(l location, schemas []*jsonschema.Schema, full bool) (value, error) {
	least, want, most, unique := 0, 0, maxSteps, false
	for _, s := range schemas {
		if prefix, _ := itemSchemas(s); full && !m.steps.isLow() {
			want = max(want, 1, len(prefix))
		}
		least = max(least, deref(s.MinItems, 0))
		most = min(most, deref(s.MaxItems, maxSteps))
		unique = unique || s.UniqueItems
	}
	items := []any{}
	encoded := []byte("[")
	for i := range min(max(least, want), most) {
		v, err := m.valueFor(location{property: l.property, variant: l.variant + i}, itemSchemasAt(schemas, i))
		if err != nil && i < least {
			return value{}, err
		}
		if err != nil {
			break
		}
		if i > 0 {
			encoded = append(encoded, ',')
		}
		items = append(items, v.decoded)
		encoded = append(encoded, v.encoded...)
		if unique {
			m.steps.spend(i) // the library may compare each item with all before it
		}
	}
	m.steps.spend(len(encoded) / 64)
	return value{items, append(encoded, ']')}, nil
}

// itemSchemasAt returns the subschemas of schemas for the item at index i.
func itemSchemasAt(schemas []*jsonschema.Schema, i int) []*jsonschema.Schema {
	var found []*jsonschema.Schema
	for _, s := range schemas {
		prefix, rest := itemSchemas(s)
		if i < len(prefix) {
			found = append(found, prefix[i])
		} else if rest != nil {
			found = append(found, rest)
		}
	}
	return found
}

// itemSchemas returns the schemas of the first items and the schema of the
// others, which may be nil. Drafts before 2020-12 keep the first ones in items.
func itemSchemas(s *jsonschema.Schema) (prefix []*jsonschema.Schema, rest *jsonschema.Schema) {
	switch items := s.Items.(type) {
	case []*jsonschema.Schema:
		rest, _ = s.AdditionalItems.(*jsonschema.Schema)
		return items, rest
	case *jsonschema.Schema:
		return nil, items
	}
	return s.PrefixItems, s.Items2020
}
