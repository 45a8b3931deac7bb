"""What the companies of the registries are named after, where they are and what they do."""

from automation_pipeline.simulator.registries.companies import (
    Activity,
    City,
    Court,
    LegalForm,
    Role,
)

PARIS = City("PARIS", "75009", "75109", "75", "11", Court("PARIS", "7501"))
CITIES = (
    PARIS,
    City("PARIS", "75015", "75115", "75", "11", Court("PARIS", "7501")),
    City("LYON", "69003", "69383", "69", "84", Court("LYON", "6901")),
    City("MARSEILLE", "13008", "13208", "13", "93", Court("MARSEILLE", "1303")),
    City("BORDEAUX", "33000", "33063", "33", "75", Court("BORDEAUX", "3302")),
    City("LILLE", "59800", "59350", "59", "32", Court("LILLE METROPOLE", "5910")),
    City("NANTES", "44000", "44109", "44", "52", Court("NANTES", "4401")),
    City("TOULOUSE", "31000", "31555", "31", "76", Court("TOULOUSE", "3102")),
    City("RENNES", "35000", "35238", "35", "53", Court("RENNES", "3501")),
    City("STRASBOURG", "67000", "67482", "67", "44", Court("STRASBOURG", "6752")),
    City("SAINT-DENIS", "93200", "93066", "93", "11", Court("BOBIGNY", "9301")),
    City("AIX-LES-BAINS", "73100", "73008", "73", "84", Court("CHAMBERY", "7301")),
)
STREETS = (
    ("RUE", "DES LILAS"),
    ("RUE", "DE L'ABBE GREGOIRE"),
    ("AVENUE", "JEAN JAURES"),
    ("AVENUE", "DE LA REPUBLIQUE"),
    ("BOULEVARD", "VICTOR HUGO"),
    ("PLACE", "DU MARCHE"),
    ("CHEMIN", "DES VIGNES"),
    ("QUAI", "DE LA FOSSE"),
    ("IMPASSE", "DU MOULIN"),
    ("ROUTE", "DE PARIS"),
)
COMPLEMENTS = ("BATIMENT B", "ZI DES PRES", "ESC 2 ETAGE 3", "CENTRE COMMERCIAL LES HALLES")
NAMES = (
    "ETABLISSEMENTS {}",
    "{} CONSEIL",
    "{} ET FILS",
    "ATELIERS {}",
    "{} DISTRIBUTION",
    "MAISON {}",
    "GROUPE {}",
)
SIGNS = ("L'ATELIER", "CHEZ {}", "LE COMPTOIR {}", "LA BOUTIQUE")
CLUBS = ("LES AMIS DE {}", "UNION SPORTIVE DE {}", "COMITE DES FETES DE {}", "CHORALE DE {}")

PRESIDENT = Role("Président de SAS", "73", "PRESIDENT")
MANAGER = Role("Gérant", "30", "GERANT")
CHAIR = Role("Président du conseil d'administration", "51", "PRESIDENT DU CONSEIL D'ADMINISTRATION")
DIRECTOR = Role("Directeur Général", "53", "DIRECTEUR GENERAL")
AUDITOR = Role("Commissaire aux comptes titulaire", "71", "COMMISSAIRE AUX COMPTES TITULAIRE")
TRADER = Role("Entrepreneur individuel", "28", "EXPLOITANT")

SAS = LegalForm("5710", "Société par actions simplifiée", "SASh", PRESIDENT)
SARL = LegalForm("5499", "Société à responsabilité limitée", "SARL", MANAGER)
SA = LegalForm("5599", "Société anonyme à conseil d'administration", "SAca", CHAIR)
SASU = LegalForm("5720", "Société par actions simplifiée à associé unique", "SASu", PRESIDENT)
EURL = LegalForm("5498", "Société à responsabilité limitée à associé unique", "EURL", MANAGER)
COMPANY_FORMS = (
    SAS,
    SAS,
    SARL,
    SARL,
    SASU,
    EURL,
    SA,
    LegalForm("6540", "Société civile immobilière", "SCIm", MANAGER),
)
YOUNG_FORMS = (SAS, SASU, EURL)
FARM_FORMS = (
    LegalForm("6533", "Groupement agricole d'exploitation en commun", "GAEC", MANAGER),
    LegalForm("6598", "Exploitation agricole à responsabilité limitée", "EARL", MANAGER),
)
ASSOCIATION_FORM = LegalForm(
    "9220", "Association déclarée", "ASSO", Role("Président", "40", "PRESIDENT")
)
PUBLIC_FORM = LegalForm("7120", "Service central d'un ministère", "ADMI", DIRECTOR)
TRADER_FORM = LegalForm("1000", "Entrepreneur individuel", "PPco", TRADER)

HEAD_OFFICE = Activity("70.10Z", "Activités des sièges sociaux", "M")
COMPANY_ACTIVITIES = (
    Activity("62.01Z", "Programmation informatique", "J"),
    Activity("70.22Z", "Conseil pour les affaires et autres conseils de gestion", "M"),
    Activity("47.71Z", "Commerce de détail d'habillement en magasin spécialisé", "G"),
    Activity("56.10A", "Restauration traditionnelle", "I"),
    Activity("43.22A", "Travaux d'installation d'eau et de gaz en tous locaux", "F"),
    Activity("49.41A", "Transports routiers de fret interurbains", "H"),
    Activity("68.20B", "Location de terrains et d'autres biens immobiliers", "L"),
    Activity("10.71C", "Boulangerie et boulangerie-pâtisserie", "C"),
    Activity("46.90Z", "Commerce de gros non spécialisé", "G"),
    Activity("73.11Z", "Activités des agences de publicité", "M"),
)
LIBERAL_ACTIVITIES = (
    Activity("86.21Z", "Activité des médecins généralistes", "Q"),
    Activity("69.10Z", "Activités juridiques", "M"),
    Activity("71.11Z", "Activités d'architecture", "M"),
)
ASSOCIATION_ACTIVITIES = (
    Activity("94.99Z", "Autres organisations fonctionnant par adhésion volontaire", "S"),
    Activity("93.12Z", "Activités de clubs de sports", "R"),
    Activity("85.59B", "Autres enseignements", "P"),
)
FARM_ACTIVITIES = (
    Activity("01.11Z", "Culture de céréales, de légumineuses et de graines oléagineuses", "A"),
    Activity("01.41Z", "Élevage de vaches laitières", "A"),
    Activity("01.21Z", "Culture de la vigne", "A"),
)
PUBLIC_ACTIVITY = Activity("84.11Z", "Administration publique générale", "O")

# Headcount codes with the size of a company of so many; the small ones are the common ones.
HEADCOUNTS = (
    ("NN", "PME"), ("NN", "PME"), ("00", "PME"), ("01", "PME"), ("01", "PME"), ("02", "PME"), ("03", "PME"),
    ("11", "PME"), ("12", "PME"), ("21", "PME"), ("32", "ETI"), ("41", "ETI"), ("51", "GE"),
)  # fmt: skip
