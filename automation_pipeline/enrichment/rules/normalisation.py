"""Normalise the countries, NAF codes, dates and postal codes of the registers."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import date
from types import MappingProxyType

# These countries belong to France and have French postal codes.
OVERSEAS = frozenset({"BL", "GF", "GP", "MF", "MQ", "NC", "PF", "PM", "RE", "TF", "WF", "YT"})

BY_THREE_LETTERS = {
    "ABW": "AW", "AFG": "AF", "AGO": "AO", "AIA": "AI", "ALA": "AX", "ALB": "AL", "AND": "AD", "ARE": "AE",
    "ARG": "AR", "ARM": "AM", "ASM": "AS", "ATA": "AQ", "ATF": "TF", "ATG": "AG", "AUS": "AU", "AUT": "AT",
    "AZE": "AZ", "BDI": "BI", "BEL": "BE", "BEN": "BJ", "BES": "BQ", "BFA": "BF", "BGD": "BD", "BGR": "BG",
    "BHR": "BH", "BHS": "BS", "BIH": "BA", "BLM": "BL", "BLR": "BY", "BLZ": "BZ", "BMU": "BM", "BOL": "BO",
    "BRA": "BR", "BRB": "BB", "BRN": "BN", "BTN": "BT", "BVT": "BV", "BWA": "BW", "CAF": "CF", "CAN": "CA",
    "CCK": "CC", "CHE": "CH", "CHL": "CL", "CHN": "CN", "CIV": "CI", "CMR": "CM", "COD": "CD", "COG": "CG",
    "COK": "CK", "COL": "CO", "COM": "KM", "CPV": "CV", "CRI": "CR", "CUB": "CU", "CUW": "CW", "CXR": "CX",
    "CYM": "KY", "CYP": "CY", "CZE": "CZ", "DEU": "DE", "DJI": "DJ", "DMA": "DM", "DNK": "DK", "DOM": "DO",
    "DZA": "DZ", "ECU": "EC", "EGY": "EG", "ERI": "ER", "ESH": "EH", "ESP": "ES", "EST": "EE", "ETH": "ET",
    "FIN": "FI", "FJI": "FJ", "FLK": "FK", "FRA": "FR", "FRO": "FO", "FSM": "FM", "GAB": "GA", "GBR": "GB",
    "GEO": "GE", "GGY": "GG", "GHA": "GH", "GIB": "GI", "GIN": "GN", "GLP": "GP", "GMB": "GM", "GNB": "GW",
    "GNQ": "GQ", "GRC": "GR", "GRD": "GD", "GRL": "GL", "GTM": "GT", "GUF": "GF", "GUM": "GU", "GUY": "GY",
    "HKG": "HK", "HMD": "HM", "HND": "HN", "HRV": "HR", "HTI": "HT", "HUN": "HU", "IDN": "ID", "IMN": "IM",
    "IND": "IN", "IOT": "IO", "IRL": "IE", "IRN": "IR", "IRQ": "IQ", "ISL": "IS", "ISR": "IL", "ITA": "IT",
    "JAM": "JM", "JEY": "JE", "JOR": "JO", "JPN": "JP", "KAZ": "KZ", "KEN": "KE", "KGZ": "KG", "KHM": "KH",
    "KIR": "KI", "KNA": "KN", "KOR": "KR", "KWT": "KW", "LAO": "LA", "LBN": "LB", "LBR": "LR", "LBY": "LY",
    "LCA": "LC", "LIE": "LI", "LKA": "LK", "LSO": "LS", "LTU": "LT", "LUX": "LU", "LVA": "LV", "MAC": "MO",
    "MAF": "MF", "MAR": "MA", "MCO": "MC", "MDA": "MD", "MDG": "MG", "MDV": "MV", "MEX": "MX", "MHL": "MH",
    "MKD": "MK", "MLI": "ML", "MLT": "MT", "MMR": "MM", "MNE": "ME", "MNG": "MN", "MNP": "MP", "MOZ": "MZ",
    "MRT": "MR", "MSR": "MS", "MTQ": "MQ", "MUS": "MU", "MWI": "MW", "MYS": "MY", "MYT": "YT", "NAM": "NA",
    "NCL": "NC", "NER": "NE", "NFK": "NF", "NGA": "NG", "NIC": "NI", "NIU": "NU", "NLD": "NL", "NOR": "NO",
    "NPL": "NP", "NRU": "NR", "NZL": "NZ", "OMN": "OM", "PAK": "PK", "PAN": "PA", "PCN": "PN", "PER": "PE",
    "PHL": "PH", "PLW": "PW", "PNG": "PG", "POL": "PL", "PRI": "PR", "PRK": "KP", "PRT": "PT", "PRY": "PY",
    "PSE": "PS", "PYF": "PF", "QAT": "QA", "REU": "RE", "ROU": "RO", "RUS": "RU", "RWA": "RW", "SAU": "SA",
    "SDN": "SD", "SEN": "SN", "SGP": "SG", "SGS": "GS", "SHN": "SH", "SJM": "SJ", "SLB": "SB", "SLE": "SL",
    "SLV": "SV", "SMR": "SM", "SOM": "SO", "SPM": "PM", "SRB": "RS", "SSD": "SS", "STP": "ST", "SUR": "SR",
    "SVK": "SK", "SVN": "SI", "SWE": "SE", "SWZ": "SZ", "SXM": "SX", "SYC": "SC", "SYR": "SY", "TCA": "TC",
    "TCD": "TD", "TGO": "TG", "THA": "TH", "TJK": "TJ", "TKL": "TK", "TKM": "TM", "TLS": "TL", "TON": "TO",
    "TTO": "TT", "TUN": "TN", "TUR": "TR", "TUV": "TV", "TWN": "TW", "TZA": "TZ", "UGA": "UG", "UKR": "UA",
    "UMI": "UM", "URY": "UY", "USA": "US", "UZB": "UZ", "VAT": "VA", "VCT": "VC", "VEN": "VE", "VGB": "VG",
    "VIR": "VI", "VNM": "VN", "VUT": "VU", "WLF": "WF", "WSM": "WS", "YEM": "YE", "ZAF": "ZA", "ZMB": "ZM",
    "ZWE": "ZW",
}  # fmt: skip

# Names without accents and punctuation: `ETATS-UNIS` is `ETATS UNIS`.
BY_NAME = {
    "AFRIQUE DU SUD": "ZA",
    "ALBANIE": "AL", "ALGERIE": "DZ", "ALLEMAGNE": "DE", "ANDORRE": "AD", "ARABIE SAOUDITE": "SA",
    "ARGENTINE": "AR", "ARMENIE": "AM", "AUSTRALIE": "AU", "AUTRICHE": "AT", "BELGIQUE": "BE", "BENIN": "BJ",
    "BERMUDES": "BM", "BOSNIE HERZEGOVINE": "BA", "BRESIL": "BR", "BULGARIE": "BG", "BURKINA": "BF",
    "BURKINA FASO": "BF", "CAIMANES ILES": "KY", "CAMEROUN": "CM", "CANADA": "CA", "CHILI": "CL", "CHINE": "CN",
    "CHYPRE": "CY", "COLOMBIE": "CO", "COREE DU SUD": "KR", "COREE REPUBLIQUE DE": "KR", "COTE D IVOIRE": "CI",
    "CROATIE": "HR", "DANEMARK": "DK", "EGYPTE": "EG", "EMIRATS ARABES UNIS": "AE", "ESPAGNE": "ES",
    "ESTONIE": "EE", "ETATS UNIS": "US", "ETATS UNIS D AMERIQUE": "US", "FINLANDE": "FI", "FRANCE": "FR",
    "GABON": "GA", "GEORGIE": "GE", "GIBRALTAR": "GI", "GRECE": "GR", "GUADELOUPE": "FR", "GUERNESEY": "GG",
    "GUINEE": "GN", "GUYANE": "FR", "GUYANE FRANCAISE": "FR", "HONG KONG": "HK", "HONGRIE": "HU", "INDE": "IN",
    "INDONESIE": "ID", "IRLANDE": "IE", "IRLANDE OU EIRE": "IE", "ISLANDE": "IS", "ISRAEL": "IL", "ITALIE": "IT",
    "JAPON": "JP", "JERSEY": "JE", "KAZAKHSTAN": "KZ", "LA REUNION": "FR", "LETTONIE": "LV", "LIBAN": "LB",
    "LIECHTENSTEIN": "LI", "LITUANIE": "LT", "LUXEMBOURG": "LU", "MACEDOINE DU NORD": "MK", "MADAGASCAR": "MG",
    "MALAISIE": "MY", "MALI": "ML", "MALTE": "MT", "MAN ILE": "IM", "MAROC": "MA", "MARTINIQUE": "FR",
    "MAURICE": "MU", "MAURITANIE": "MR", "MAYOTTE": "FR", "MEXIQUE": "MX", "MOLDAVIE": "MD", "MONACO": "MC",
    "MONTENEGRO": "ME", "NIGER": "NE", "NIGERIA": "NG", "NORVEGE": "NO", "NOUVELLE CALEDONIE": "FR",
    "NOUVELLE ZELANDE": "NZ", "PANAMA": "PA", "PAYS BAS": "NL", "PHILIPPINES": "PH", "POLOGNE": "PL",
    "POLYNESIE FRANCAISE": "FR", "PORTUGAL": "PT", "QATAR": "QA", "REUNION": "FR", "ROUMANIE": "RO",
    "ROYAUME UNI": "GB", "RUSSIE": "RU", "RUSSIE FEDERATION DE": "RU", "SAINT BARTHELEMY": "FR",
    "SAINT MARIN": "SM", "SAINT MARTIN": "FR", "SAINT PIERRE ET MIQUELON": "FR", "SENEGAL": "SN", "SERBIE": "RS",
    "SINGAPOUR": "SG", "SLOVAQUIE": "SK", "SLOVENIE": "SI", "SUEDE": "SE", "SUISSE": "CH", "TAIWAN": "TW",
    "TCHEQUE REPUBLIQUE": "CZ", "TCHEQUIE": "CZ", "TERRES AUSTRALES FRANCAISES": "FR", "THAILANDE": "TH",
    "TOGO": "TG", "TUNISIE": "TN", "TURQUIE": "TR", "UKRAINE": "UA", "VATICAN OU SAINT SIEGE": "VA",
    "VIERGES BRITANNIQUES ILES": "VG", "VIET NAM": "VN", "WALLIS ET FUTUNA": "FR",
}  # fmt: skip

TWO_LETTERS = frozenset(BY_THREE_LETTERS.values())


MASKED = "[NON-DIFFUSIBLE]"
_NAF = re.compile(r"(\d{2})\.?(\d{2})([A-Z])")
_DATES = (
    (re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:T.*)?"), (1, 2, 3)),
    (re.compile(r"(\d{2})[/-](\d{2})[/-](\d{4})"), (3, 2, 1)),
    (re.compile(r"(\d{4})(\d{2})(\d{2})"), (1, 2, 3)),
)


def text(given: object) -> str | None:
    """Return a string or a number as a trimmed string; None if it is empty or masked."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    bare = " ".join(str(given).replace("\0", "").split())
    return bare if bare and MASKED not in bare.upper() else None


def is_masked(given: object) -> bool:
    return isinstance(given, str) and MASKED in given.upper()


def naf(given: object) -> str | None:
    """Return the NAF code with its dot, such as `62.01Z`. None if it is not a code."""
    match = _NAF.fullmatch((text(given) or "").upper().replace(" ", ""))
    return f"{match[1]}.{match[2]}{match[3]}" if match else None


def country(given: object) -> str | None:
    """Return the two-letter code of a code or of INSEE's name. None if it is unknown."""
    decomposed = unicodedata.normalize("NFKD", text(given) or "").upper()
    bare = " ".join(
        re.findall(
            "[A-Z0-9]+", "".join(char for char in decomposed if not unicodedata.combining(char))
        )
    )
    code = bare if bare in TWO_LETTERS else BY_THREE_LETTERS.get(bare) or BY_NAME.get(bare)
    return "FR" if code in OVERSEAS else code


def day(given: object) -> date | None:
    bare = text(given) or ""
    for pattern, (year, month, day_) in _DATES:
        match = pattern.fullmatch(bare)
        if match:
            try:
                return date(int(match[year]), int(match[month]), int(match[day_]))
            except ValueError:
                return None
    return None


def postal_code(given: object, country_given: object = None) -> str | None:
    """Restore the leading zero of a French code that was sent as a number."""
    bare = text(given)
    is_french = text(country_given) is None or country(country_given) == "FR"
    return f"0{bare}" if bare and is_french and re.fullmatch("[0-9]{4}", bare) else bare


def line(*parts: object) -> str | None:
    """Join the parts that are not empty or masked."""
    return " ".join(filter(None, map(text, parts))) or None


DIVISIONS: Mapping[str, str] = MappingProxyType(
    {
        "01": "Culture et production animale, chasse et services annexes",
        "02": "Sylviculture et exploitation forestière",
        "03": "Pêche et aquaculture",
        "05": "Extraction de houille et de lignite",
        "06": "Extraction d'hydrocarbures",
        "07": "Extraction de minerais métalliques",
        "08": "Autres industries extractives",
        "09": "Services de soutien aux industries extractives",
        "10": "Industries alimentaires",
        "11": "Fabrication de boissons",
        "12": "Fabrication de produits à base de tabac",
        "13": "Fabrication de textiles",
        "14": "Industrie de l'habillement",
        "15": "Industrie du cuir et de la chaussure",
        "16": "Travail du bois et fabrication d'articles en bois et en liège",
        "17": "Industrie du papier et du carton",
        "18": "Imprimerie et reproduction d'enregistrements",
        "19": "Cokéfaction et raffinage",
        "20": "Industrie chimique",
        "21": "Industrie pharmaceutique",
        "22": "Fabrication de produits en caoutchouc et en plastique",
        "23": "Fabrication d'autres produits minéraux non métalliques",
        "24": "Métallurgie",
        "25": "Fabrication de produits métalliques, à l'exception des machines et des équipements",
        "26": "Fabrication de produits informatiques, électroniques et optiques",
        "27": "Fabrication d'équipements électriques",
        "28": "Fabrication de machines et équipements",
        "29": "Industrie automobile",
        "30": "Fabrication d'autres matériels de transport",
        "31": "Fabrication de meubles",
        "32": "Autres industries manufacturières",
        "33": "Réparation et installation de machines et d'équipements",
        "35": "Production et distribution d'électricité, de gaz, de vapeur et d'air conditionné",
        "36": "Captage, traitement et distribution d'eau",
        "37": "Collecte et traitement des eaux usées",
        "38": "Collecte, traitement et élimination des déchets ; récupération",
        "39": "Dépollution et autres services de gestion des déchets",
        "41": "Construction de bâtiments",
        "42": "Génie civil",
        "43": "Travaux de construction spécialisés",
        "45": "Commerce et réparation d'automobiles et de motocycles",
        "46": "Commerce de gros, à l'exception des automobiles et des motocycles",
        "47": "Commerce de détail, à l'exception des automobiles et des motocycles",
        "49": "Transports terrestres et transport par conduites",
        "50": "Transports par eau",
        "51": "Transports aériens",
        "52": "Entreposage et services auxiliaires des transports",
        "53": "Activités de poste et de courrier",
        "55": "Hébergement",
        "56": "Restauration",
        "58": "Édition",
        "59": "Production de films, de vidéo et de télévision ; enregistrement sonore et édition musicale",
        "60": "Programmation et diffusion",
        "61": "Télécommunications",
        "62": "Programmation, conseil et autres activités informatiques",
        "63": "Services d'information",
        "64": "Activités des services financiers, hors assurance et caisses de retraite",
        "65": "Assurance",
        "66": "Activités auxiliaires de services financiers et d'assurance",
        "68": "Activités immobilières",
        "69": "Activités juridiques et comptables",
        "70": "Activités des sièges sociaux ; conseil de gestion",
        "71": "Activités d'architecture et d'ingénierie ; activités de contrôle et analyses techniques",
        "72": "Recherche-développement scientifique",
        "73": "Publicité et études de marché",
        "74": "Autres activités spécialisées, scientifiques et techniques",
        "75": "Activités vétérinaires",
        "77": "Activités de location et location-bail",
        "78": "Activités liées à l'emploi",
        "79": "Agences de voyage, voyagistes, services de réservation et activités connexes",
        "80": "Enquêtes et sécurité",
        "81": "Services relatifs aux bâtiments et aménagement paysager",
        "82": "Activités administratives et autres activités de soutien aux entreprises",
        "84": "Administration publique et défense ; sécurité sociale obligatoire",
        "85": "Enseignement",
        "86": "Activités pour la santé humaine",
        "87": "Hébergement médico-social et social",
        "88": "Action sociale sans hébergement",
        "90": "Activités créatives, artistiques et de spectacle",
        "91": "Bibliothèques, archives, musées et autres activités culturelles",
        "92": "Organisation de jeux de hasard et d'argent",
        "93": "Activités sportives, récréatives et de loisirs",
        "94": "Activités des organisations associatives",
        "95": "Réparation d'ordinateurs et de biens personnels et domestiques",
        "96": "Autres services personnels",
        "97": "Activités des ménages en tant qu'employeurs de personnel domestique",
        "98": "Activités indifférenciées des ménages en tant que producteurs de biens et services pour usage propre",
        "99": "Activités des organisations et organismes extraterritoriaux",
    }
)


def naf_label(code: object) -> str | None:
    """Return the name of the code's division. None if it is not a code, or the division does not exist."""
    known = naf(code)
    return DIVISIONS.get(known[:2]) if known else None
