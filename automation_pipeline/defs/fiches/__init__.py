"""The CRM mirror as assets: sales lists and fiche details, one partition a day."""
