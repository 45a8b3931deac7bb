"""The countries by the three letters of ISO 3166, and the usual ones by the name that INSEE gives them."""

# They are of France, and all their addresses have French postal codes.
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

# Without accents and signs: `ETATS-UNIS` is `ETATS UNIS`.
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
