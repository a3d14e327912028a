"""What is public about the patients of `fedpriv init`."""

SCHEMA = """
schema: fedpriv table 1
public: true
user: {column: patient, number: 900}
label: {column: died, problem: classification, classes: ["0", "1"]}
features:
  age: {range: [0, 110]}
  pressure: {range: [60, 260]}
  sex: {values: [f, m]}
unused: [hospital, glucose, smoker, stay]
"""
